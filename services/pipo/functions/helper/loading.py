"""Loads a version's module from text, under a name of its own.

`pipo_fn_<version>` is a package; the module and the files beside it are modules in it, so
`from . import prices` finds the text that was kept with the version, and never a file.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import linecache
import os
import posixpath
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any

Run = Callable[[Any, Any], Any]


class Loaded:
    """One version's module; its functions are found by name."""

    def __init__(self, name: str, folder: str, modules: Mapping[str, Sequence[str]]) -> None:
        self.folder = folder
        self.package = f"pipo_fn_{name}"
        self._texts = _Texts(self.package, folder, modules)
        self.files = frozenset(path for path, _ in modules.values())
        # Without a time, so that they are never compared with the files on the disk.
        self._lines = {
            path: (len(text), None, text.splitlines(keepends=True), path)
            for path, text in modules.values()
        }
        self._functions: dict[str, Run] = {}
        self.main = posixpath.basename(modules[""][0])
        # No import statement can mean it, so no file beside it is hidden.
        self._module_name = f"{self.package}.{self.main.removesuffix('.py').replace('.', '-')}"

    def load(self) -> None:
        """Runs the module's import. Raises: whatever it raises; then nothing of it stays."""
        self.enter()
        sys.meta_path.insert(0, self._texts)
        package = ModuleType(self.package)
        package.__path__ = []
        sys.modules[self.package] = package
        try:
            spec = self._texts.spec_of_main(self._module_name)
            self._module = importlib.util.module_from_spec(spec)
            sys.modules[self._module_name] = self._module
            assert spec.loader is not None
            spec.loader.exec_module(self._module)
        except BaseException:
            sys.meta_path.remove(self._texts)
            for name in [*sys.modules]:
                if name == self.package or name.startswith(f"{self.package}."):
                    del sys.modules[name]
            raise

    def enter(self, *, is_last: bool = False) -> None:
        """Paths and the lines of tracebacks mean this version's; `is_last`: the lines do already."""
        if not is_last:
            linecache.cache.update(self._lines)
        try:
            os.chdir(self.folder)
        except OSError:
            # The folder is gone. Whoever opens a file in it is told so.
            os.chdir("/")

    def function(self, name: str) -> Run | None:
        """A function of the module, called with the data and meta; None when there is none."""
        found = self._functions.get(name)
        if found is None:
            made = getattr(self._module, name, None)
            if not callable(made):
                return None
            found = self._functions[name] = made if _takes_meta(made) else _without_meta(made)
        return found


class _Texts:
    """Finds and loads the modules of one package in their texts.

    A finder and a loader by its methods: `importlib.abc` would double the start of a helper.
    """

    def __init__(self, package: str, folder: str, modules: Mapping[str, Sequence[str]]) -> None:
        self._folder = folder
        self._main = modules[""]
        self._package = package
        self._modules = {
            f"{package}.{dotted}": found for dotted, found in modules.items() if dotted
        }

    def spec_of_main(self, name: str) -> importlib.machinery.ModuleSpec:
        self._modules[name] = self._main
        return self._spec(name, is_package=False)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{self._package}."):
            return None
        if fullname in self._modules:
            return self._spec(fullname, is_package=False)
        inner = f"{fullname}.__init__"
        if inner in self._modules or any(n.startswith(f"{fullname}.") for n in self._modules):
            return self._spec(fullname, is_package=True)
        return None

    def _spec(self, name: str, *, is_package: bool) -> importlib.machinery.ModuleSpec:
        loader: Any = self
        spec = importlib.machinery.ModuleSpec(name, loader, is_package=is_package)
        found = self._modules.get(f"{name}.__init__" if is_package else name)
        if found is not None:
            spec.origin = posixpath.join(self._folder, found[0])
            spec.has_location = True
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """A module as any other."""

    def is_package(self, fullname: str) -> bool:
        return fullname not in self._modules

    def get_source(self, fullname: str) -> str:
        found = self._modules.get(fullname) or self._modules.get(f"{fullname}.__init__")
        return found[1] if found else ""

    def get_code(self, fullname: str) -> CodeType:
        path, text = self._modules.get(fullname) or self._modules.get(
            f"{fullname}.__init__", ("", "")
        )
        # Python takes this mark from a file, and from a text it does not.
        code: CodeType = compile(text.removeprefix("\ufeff"), path, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)


def _without_meta(function: Callable[[Any], Any]) -> Run:
    return lambda data, meta: function(data)


def _takes_meta(function: Callable[..., Any]) -> bool:
    """Whether it is called with the data and meta, or with the data alone (decision 25)."""
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return True
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) != 1
