# Moves what waits in Sidekiq to jq: REDIS_URL=... JQ_SERVER=... ruby move.rb. Stop all processes of Sidekiq first.
require "sidekiq/api"
require "time"
require_relative "jq"

# retries returns how many retries a job of Sidekiq has left.
def retries(item)
  limit = { true => 25, false => 0, nil => 25 }.fetch(item["retry"], item["retry"])
  [item.key?("retry_count") ? limit - item["retry_count"] - 1 : limit, 0].max
end

def move(job, at: nil)
  item = job.item
  due = at ? { run_at: at.utc.iso8601(6) } : {}
  # The key makes a repeat safe for a day, if this program is killed before it deletes the job.
  JQ.enqueue(item["class"], item["args"], key: "sidekiq/#{item["jid"]}", queue: item["queue"], max_retries: retries(item), **due)
  job.delete
end

Sidekiq::Queue.all.each { |queue| queue.each { |job| move(job) } }
Sidekiq::ScheduledSet.new.each { |job| move(job, at: job.at) }
Sidekiq::RetrySet.new.each { |job| move(job, at: job.at) }
