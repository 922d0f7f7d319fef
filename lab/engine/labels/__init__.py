"""What people say of a run: vocabularies, guidelines, labels. Pure; nothing here knows a database."""
