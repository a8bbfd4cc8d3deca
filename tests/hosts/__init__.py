"""Real nodes for the tests: OpenSSH daemons with homes of their own, and shells as sshd would start them."""
