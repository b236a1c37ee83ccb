"""Secret values, from where their references say; a value is in no message."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from pipo.errors import BadRequest

_OP_TIMEOUT_S = 10.0
_FILE_BYTES_LIMIT = 64 * 1024


def resolve(refs: Mapping[str, str], environ: Mapping[str, str]) -> Mapping[str, str]:
    """The value of each named reference: `env:NAME`, `file:/path`, `op://vault/item/field`.

    Blocks while it reads files and runs `op`.
    Raises: BadRequest, naming every secret that has no value and why.
    """
    values: dict[str, str] = {}
    faults: list[tuple[str, str]] = []
    for name, ref in refs.items():
        try:
            values[name] = _value(ref, environ)
        except _NoValue as fault:
            faults.append((f"secret {name!r} ({ref}): {fault}", fault.hint))
    if faults:
        hints = dict.fromkeys(hint for _, hint in faults if hint)
        raise BadRequest("; ".join(text for text, _ in faults), hint="; ".join(hints))
    return values


class _NoValue(Exception):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def _value(ref: str, environ: Mapping[str, str]) -> str:
    for prefix, read in _READERS.items():
        if ref.startswith(prefix):
            return read(ref, environ)
    raise _NoValue(
        "it is no reference", "a secret is env:NAME, file:/path or op://vault/item/field"
    )


def _from_environment(ref: str, environ: Mapping[str, str]) -> str:
    name = ref.removeprefix("env:")
    if name not in environ:
        raise _NoValue(f"the variable {name} is not set", f"set {name} where the runner is started")
    return environ[name]


def _from_file(ref: str, environ: Mapping[str, str]) -> str:
    path = Path(ref.removeprefix("file:"))
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_LIMIT + 1)
        if len(content) > _FILE_BYTES_LIMIT:
            raise _NoValue(f"{path} is larger than 64 KiB")
        return content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise _NoValue(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _NoValue(f"{path} is not UTF-8 text") from error


def _from_op(ref: str, environ: Mapping[str, str]) -> str:
    # `op` may print parts of what it read: neither of its streams goes into a message.
    command = ["op", "read", "--no-newline", ref]
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_OP_TIMEOUT_S,
            check=True,
        )
        return done.stdout.decode()
    except FileNotFoundError as error:
        raise _NoValue("the program `op` is not installed", "install the 1Password CLI") from error
    except subprocess.TimeoutExpired as error:
        raise _NoValue(f"`op read` gave no answer in {_OP_TIMEOUT_S:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise _NoValue(
            f"`op read` failed with exit code {error.returncode}", "try it by hand"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise _NoValue("`op read` could not be used") from error


_READERS: dict[str, Callable[[str, Mapping[str, str]], str]] = {
    "env:": _from_environment,
    "file:": _from_file,
    "op://": _from_op,
}
