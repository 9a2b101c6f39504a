-- Why the latest attempt was put off, if it ended by Snooze. A server of an earlier version leaves it as it is.
ALTER TABLE {schema}.jobs ADD COLUMN IF NOT EXISTS reason text COLLATE "C" NOT NULL DEFAULT '';
