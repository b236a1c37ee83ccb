"""The gateway: HTTP and gRPC front doors. It keeps nothing a restart would lose and knows no pipeline rules."""
