"""Black-box tests of a whole embedded stack, through HTTP, gRPC and the command line."""
