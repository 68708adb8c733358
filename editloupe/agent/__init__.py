"""Who is asked and how it is said: chat models and their profiles, messages, the answer grammar, the embedded judge."""
