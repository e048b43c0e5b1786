"""Shows its rank and its arguments."""

import os
import sys

sys.stdout.write(" ".join([os.environ["LOCAL_RANK"], *sys.argv[1:]]) + "\n")
