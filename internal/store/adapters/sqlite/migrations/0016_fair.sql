-- Whether the keys of a queue take turns. A program of an earlier version would not let them.
--
-- Least compatible version: 16.

ALTER TABLE policies ADD COLUMN fair INTEGER NOT NULL DEFAULT FALSE;

-- How many claims have given turns to keys of the queue. In a fair queue, fresh_at and retry_at in the table keys are turns: see sqlkit.Keys.
ALTER TABLE queues ADD COLUMN turns INTEGER NOT NULL DEFAULT 0;
