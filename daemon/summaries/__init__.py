"""Summaries of servers and tools in one sentence, written by a model: questions, answers, endpoint."""
