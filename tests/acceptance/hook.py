"""What a hook of the case runner calls: hands its name and its arguments to the test that holds the processes, and waits.

python hook.py PORT restart|fault|clock
"""

import json
import os
import socket
import sys


def main() -> int:
    port, name = sys.argv[1:]
    given = {
        k.removeprefix("HANGO_CASE_").lower(): v for k, v in os.environ.items() if k.startswith("HANGO_CASE_")
    }
    with socket.create_connection(("127.0.0.1", int(port))) as line:
        line.sendall(json.dumps({"name": name, **given}).encode() + b"\n")
        return 0 if line.makefile().readline() == "done\n" else 1


if __name__ == "__main__":
    sys.exit(main())
