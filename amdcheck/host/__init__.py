"""Where evidence comes from: the live machine, a recording, a host tree. One protocol for all."""
