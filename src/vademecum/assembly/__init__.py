"""Parts → an agent: a model, an index, a gate, tools, a record and perhaps a charter, put together."""
