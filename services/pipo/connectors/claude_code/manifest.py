"""claude_code: an answer from Claude Code, the command-line agent."""

from pipo.connectors.agent_schema import cli_agent

MANIFEST = cli_agent("claude_code", "Claude Code")
