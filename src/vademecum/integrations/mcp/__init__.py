"""Skills over the Model Context Protocol, both ways: the server, and servers as sources."""

EXTENSION = "io.modelcontextprotocol/skills"
