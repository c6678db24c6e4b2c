"""Stands in for distrl.evaluate. The first argument says what happens."""

import json
import sys
import time

HOW, FLAGS = sys.argv[1], dict(f.lstrip("-").partition("=")[::2] for f in sys.argv[2:])
print("{a log line that starts like JSON", flush=True)
if HOW == "fails" and FLAGS["checkpoint"] == "newest":
    sys.exit("no such checkpoint")
if HOW == "hangs":
    time.sleep(60)
mean = 500.0 if FLAGS["checkpoint"] == "best" else 400.0
result = {**FLAGS, "episodes": int(FLAGS["episodes"]), "mean_return": mean}
print(json.dumps(result), flush=True)
print("a line at the exit", file=sys.stderr)
