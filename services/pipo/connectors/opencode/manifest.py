"""opencode: an answer from OpenCode, the command-line agent."""

from pipo.connectors.agent_schema import cli_agent

MANIFEST = cli_agent("opencode", "OpenCode")
