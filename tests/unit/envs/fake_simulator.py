"""A stand-in for ns-3. A plan file states its behaviour for each request, also across restarts."""

import json
import os
import signal
import sys
import time
from pathlib import Path


def say(message):
    sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    sys.stdout.flush()


def next_number(folder):
    """Number of earlier requests to all processes."""
    with (folder / "asked").open("ab", buffering=0) as file:
        file.write(b".")
        return file.tell() - 1  # the position of this byte: another process may have appended since


def main():
    plan = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[1]).parent
    with (folder / "started").open("a") as file:
        file.write(f"{os.getpid()}\n")
    say({"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        number = next_number(folder)
        behaviour = plan[number] if number < len(plan) else "answer"
        n = question["users"]
        powers = [question["power_dbm"][point] for point in question["serving"]]
        key = "mbps" if question["objective"] == "throughput" else "sinr"
        good = {"id": question["id"], key: [power * question["run"] for power in powers]}
        match behaviour:
            case "answer":
                say(good)
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "ended":
                sys.stderr.write("NS_FATAL, terminating\n")
                sys.exit(3)
            case "hung":
                time.sleep(1000)
            case "half":
                sys.stdout.write(json.dumps(good)[:-3])
                sys.stdout.flush()
                sys.exit(0)
            case "garbage":
                say("\x00\xff not JSON")
            case "list":
                say([1, 2])
            case "wrong id":
                say(good | {"id": question["id"] + 1})
            case "too few":
                say(good | {key: good[key][:-1]})
            case "nan":
                say(good | {key: [float("nan")] * n})
            case "negative":
                say(good | {key: [-1.0] * n})
            case "text":
                say(good | {key: ["many"] * n})
            case "dead afterwards":
                say(good)
                sys.exit(0)


if __name__ == "__main__":
    main()
