"""torch.testing._internal.optests: checks of operators of one's own (`opcheck`), and tests that are made of them."""

from flambeau.testing._internal.optests.autograd_registration import autograd_registration_check as autograd_registration_check
from flambeau.testing._internal.optests.checks import ALL_TEST_UTILS as ALL_TEST_UTILS
from flambeau.testing._internal.optests.checks import OpCheckError as OpCheckError
from flambeau.testing._internal.optests.checks import opcheck as opcheck
from flambeau.testing._internal.optests.fake_tensor import fake_check as fake_check
from flambeau.testing._internal.optests.generate_tests import dontGenerateOpCheckTests as dontGenerateOpCheckTests
from flambeau.testing._internal.optests.generate_tests import generate_opcheck_tests as generate_opcheck_tests
from flambeau.testing._internal.optests.generate_tests import is_inside_opcheck_mode as is_inside_opcheck_mode
