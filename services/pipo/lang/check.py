"""The check: every finding of a set of files, and the models of those without errors.

    load (P001) → shape (P002) → rules, block by block → chains, file by file → P059

Nothing is run and no connector is imported: the manifests come as an argument.
Only with `import_modules` does the check import the functions' modules, each in
a process of its own (decision 38).

Source: facts §7; design §8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipo.errors import Finding, InvalidPipeline
from pipo.lang import model, schema, validation
from pipo.lang.document import plain
from pipo.lang.draft import Draft
from pipo.lang.load import decode, load
from pipo.lang.model import Pipeline
from pipo.lang.rules import chains, connectors, files, flow, names, policies, texts
from pipo.lang.shape import draft_of

if TYPE_CHECKING:
    from pipo.connectors.contract import Manifest


@dataclass(frozen=True, slots=True)
class Source:
    """A file's text; `file` is what findings call it and what its paths are relative to.

    With `files`, the texts of the files that it names by their paths as written, no other file
    is looked at.
    """

    text: str
    file: str
    files: Mapping[str, str] | None = None

    @classmethod
    def read(cls, path: Path, file: str = "") -> Source:
        """The source in a file, shown as `file`.

        Raises: OSError, when it cannot be read.
        """
        return cls(decode(path.read_bytes()), file or str(path))


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one file, by position; `pipeline` is there unless one is an error.

    `not_imported` names the functions' module when it was read and not run: what
    only its import shows (P059) is then not among the findings.
    """

    file: str
    findings: list[Finding] = field(default_factory=list)
    pipeline: Pipeline | None = None
    not_imported: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)


def check(
    sources: Sequence[Source],
    manifests: Mapping[str, Manifest],
    home: Path | None = None,
    *,
    import_modules: bool = False,
    quote: bool = True,
) -> list[Report]:
    """One report for each source, in their order; several are also compared with each other.

    `home` is where trust in templates is recorded. `import_modules` runs the
    functions' modules; it is for files whose code may run here. Without `quote` no
    finding shows what stands in a file that a source names: its author may not read it.
    """
    reports: dict[int, Report] = {}
    drafts: dict[int, Draft] = {}
    for index, source in enumerate(sources):
        loaded = load(source.text, source.file)
        if loaded.root is None:
            reports[index] = Report(source.file, list(loaded.findings))
        else:
            draft = draft_of(source.file, loaded.root, manifests, home)
            draft.files = source.files
            drafts[index] = draft
    whole = [draft for draft in drafts.values() if _judge(draft, quote=quote)]
    chains.ports(whole)
    chains.bots(whole)
    chains.chains(whole)
    for index, draft in drafts.items():
        files.imports(draft, run=import_modules, quote=quote)
        found = draft.findings()
        failed = any(finding.severity == "error" for finding in found)
        pipeline = None if failed else model.build(plain(draft.root))
        unrun = () if import_modules else files.named_modules(draft)
        reports[index] = Report(draft.file, found, pipeline, unrun)
    return [reports[index] for index in range(len(sources))]


def parse(
    source: Source,
    manifests: Mapping[str, Manifest],
    home: Path | None = None,
    *,
    import_modules: bool = False,
) -> Pipeline:
    """The model of one file; the arguments are those of `check`.

    Raises: InvalidPipeline, with all findings, when one of them is an error.
    """
    report = check([source], manifests, home, import_modules=import_modules)[0]
    if report.pipeline is None:
        errors = [finding for finding in report.findings if finding.severity == "error"]
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        first = errors[0]
        raise InvalidPipeline(
            f"{source.file}:{first.line}:{first.col}: {first.code} {first.message}{more}",
            findings=report.findings,
            hint=first.hint,
        )
    return report.pipeline


def restore(source: Source) -> Pipeline:
    """The model of a text that passed its check when it was stored, as a version's has.

    Nothing outside the text is looked at: its files may have moved on since.
    Raises: InvalidPipeline, when the text no longer has the shape of a pipeline.
    """
    loaded = load(source.text, source.file)
    why = loaded.findings[0].message if loaded.findings else ""
    if loaded.root is not None:
        faults = validation.faults(schema.FILE, loaded.root, "")
        why = faults[0].message if faults else ""
        with suppress(KeyError, StopIteration):
            if not faults:
                return model.build(plain(loaded.root))
    raise InvalidPipeline(
        f"{source.file}: the stored text is no pipeline: {why or 'a block is missing'}",
        findings=loaded.findings,
    )


def shown(file: str, finding: Finding) -> str:
    """A finding as the command line prints it, its hint on a line of its own.

    Source: D024.
    """
    place = f"{file}:{finding.line}:{finding.col}"
    first = f"{place}  {finding.severity}  {finding.code}  {finding.message}"
    return f"{first}\n  {finding.hint}" if finding.hint else first


def _judge(draft: Draft, *, quote: bool) -> bool:
    """All rules on one file; False when it is not whole enough to compare with others."""
    if "file" in draft.broken or not names.inputs(draft):
        return False
    clear = names.reserved(draft)
    names.kinds(draft)
    texts.check(draft)
    policies.checks(draft)
    policies.thens(draft)
    policies.answers(draft)
    policies.idle_keys(draft)
    connectors.sqlite(draft)
    connectors.schedules(draft)
    connectors.doors(draft)
    connectors.commands(draft)
    connectors.agents(draft)
    connectors.own_chain(draft)
    files.present(draft, quote=quote)
    files.functions(draft)
    files.trusted(draft)
    flow.branches(draft)
    if not {"nodes", "inputs", "input"} & draft.broken:
        _judge_flow(draft, clear=clear)
    return True


def _judge_flow(draft: Draft, *, clear: bool) -> None:
    """The rules on the graph; without an output, or with a name that means two things, only `from`."""
    wiring = flow.sources(draft)
    if draft.output is None or not clear:
        return
    flow.reach(draft, wiring)
    flow.unused_branches(draft, wiring)
    flow.loops(draft, wiring)
    flow.copies(draft, wiring)
    connectors.chats(draft, wiring)
