"""One-sentence summaries of servers and tools, written by a model: the questions, the answers, the endpoint."""
