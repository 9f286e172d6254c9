"""``python3 -m bitcube ARGUMENTS`` becomes the program `bitcube`, which comes with the package.

The process is replaced, so standard streams, signals and exit codes are those of the program.
"""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "bitcube")
    try:
        os.execv(program, ["bitcube", *sys.argv[1:]])
    except OSError as problem:
        print(f"error: {program}: {problem.strerror}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
