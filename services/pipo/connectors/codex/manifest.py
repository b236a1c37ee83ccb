"""codex: an answer from Codex, the command-line agent."""

from pipo.connectors.agent_schema import cli_agent

MANIFEST = cli_agent("codex", "Codex")
