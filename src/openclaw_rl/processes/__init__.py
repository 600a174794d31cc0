"""The processes that the loops run in: the server, the learner, and what keeps both going."""
