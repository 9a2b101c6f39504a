-- Which workers have been silent for long. Without the index, a heartbeat reads the rows of all workers whole, since the time is behind the names of up to
-- 1,000 queues.

CREATE INDEX workers_beat_at ON workers (beat_at);
