"""functorch.compile: functions and modules whose forward and backward pass are traced ahead of time."""

from __future__ import annotations

from flambeau._functorch.aot_autograd import aot_function as aot_function
from flambeau._functorch.aot_autograd import aot_module as aot_module
from flambeau._functorch.aot_autograd import aot_module_simplified as aot_module_simplified
from flambeau._functorch.aot_autograd import compiled_function as compiled_function
from flambeau._functorch.aot_autograd import compiled_module as compiled_module
from flambeau._functorch.aot_autograd import get_aot_compilation_context as get_aot_compilation_context
from flambeau._functorch.aot_autograd import get_aot_graph_name as get_aot_graph_name
from flambeau._functorch.aot_autograd import get_graph_being_compiled as get_graph_being_compiled
from flambeau._functorch.aot_autograd import make_boxed_compiler as make_boxed_compiler
from flambeau._functorch.aot_autograd import make_boxed_func as make_boxed_func
from flambeau._functorch.compilers import debug_compile as debug_compile
from flambeau._functorch.compilers import default_decompositions as default_decompositions
from flambeau._functorch.compilers import memory_efficient_fusion as memory_efficient_fusion
from flambeau._functorch.compilers import nnc_jit as nnc_jit
from flambeau._functorch.compilers import nop as nop
from flambeau._functorch.compilers import print_compile as print_compile
from flambeau._functorch.compilers import ts_compile as ts_compile
from flambeau._functorch.partitioners import default_partition as default_partition
from flambeau._functorch.partitioners import min_cut_rematerialization_partition as min_cut_rematerialization_partition
