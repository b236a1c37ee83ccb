"""A process that writes two records to a file and kills itself at one of its calls.

Arguments: folder, format, the number of the call. A write that is the last call is a
short one. It exits with 0 when it makes fewer calls than that.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.contract.connectors.contract import write
from tests.contract.connectors.files import file_case, settings

CALLS = ("write", "fdatasync", "fsync", "rename")


def die_at(number: int) -> None:
    left = number

    def counting(call: str) -> None:
        real = getattr(os, call)

        def counted(first: Any, *rest: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                if call == "write":
                    real(first, bytes(rest[0])[: len(rest[0]) // 2])
                else:
                    real(first, *rest)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(first, *rest)

        setattr(os, call, counted)

    for call in CALLS:
        counting(call)


async def main(folder: Path, file_format: str, number: int) -> None:
    output = file_case(file_format).build(folder)
    die_at(number)
    await write(output, settings(folder, file_format), ("b", {"n": 1}), ("c", {"n": 1}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
