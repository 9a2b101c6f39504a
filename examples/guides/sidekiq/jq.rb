require "json"
require "net/http"
require "securerandom"

# JQ enqueues jobs over HTTP. It needs only the standard library.
module JQ
  SERVER = ENV.fetch("JQ_SERVER", "http://127.0.0.1:7070")

  # JQ.enqueue("WelcomeMail", [42, "en"], queue: "mail", delay: "1h") returns the id of the job.
  def self.enqueue(kind, args, key: SecureRandom.uuid, **options)
    headers = { "Content-Type" => "application/json", "Idempotency-Key" => key }
    headers["Authorization"] = "Bearer #{ENV["JQ_TOKEN"]}" if ENV["JQ_TOKEN"]
    body = JSON.generate(jobs: [{ kind: kind, payload: args, **options }])
    5.times do
      answer = Net::HTTP.post(URI("#{SERVER}/v1/jobs"), body, headers)
      return JSON.parse(answer.body)["jobs"][0]["id"] if answer.is_a?(Net::HTTPSuccess)
      raise ArgumentError, "jq: #{JSON.parse(answer.body)["detail"]}" if answer.code.to_i < 500
    rescue IOError, SystemCallError, Timeout::Error
      # The answer was lost. A repeat with the same key adds no second job.
    end
    raise "jq: #{SERVER} does not answer"
  end
end
