"""How long a part of a program takes once it is warm: `warm.measure("training step", step)`, of which `scripts/ecosystem page` makes the table of speed.

Nothing is run where the environment has no WARM_FILE, so a program's numbers never depend on it. It stands beside the programs, which import it by its name.
"""

import json
import os
import time


def measure(what, function, seconds=0.3, most=200):
    """Append {"what", "seconds" of a call: the least processor time of this process} to the file that WARM_FILE names.

    The calls go on for a while before any counts: kernels are made in the first ones, and better ones behind them.
    """
    file = os.environ.get("WARM_FILE")
    if file is None:
        return
    times = []
    end = time.process_time() + 2 * seconds
    while (time.process_time() < end and len(times) < most) or len(times) < 8:
        before = time.process_time()
        function()
        times.append(time.process_time() - before)
    with open(file, "a") as out:
        out.write(json.dumps({"what": what, "seconds": min(times[len(times) // 2 :])}) + "\n")
