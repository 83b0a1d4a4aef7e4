# ruby examples/send/send.rb TOPIC TEXT [KEY]
require 'json'
require 'net/http'
require 'securerandom'

topic, text, key = ARGV
key ||= SecureRandom.uuid # one key for all attempts
base = ENV.fetch('PILOTFISH_URL', 'http://127.0.0.1:8085')
uri = URI("#{base}/v1/topics/#{URI.encode_www_form_component(topic)}/records?max_block_ms=2000&timeout_ms=4000")
request = Net::HTTP::Post.new(uri, 'Content-Type' => 'application/json', 'Idempotency-Key' => key)
request.body = JSON.generate(records: [{ value: { text: text } }])
timeouts = { open_timeout: 2, read_timeout: 6, max_retries: 0 } # read_timeout is longer than timeout_ms

(1..8).each do |attempt|
  status = 0 # no answer: refused, lost or too late
  wait = 1
  begin
    response = Net::HTTP.start(uri.host, uri.port, timeouts) { |http| http.request(request) }
    answer = JSON.parse(response.body)
    status = response.code.to_i
    wait = response.fetch('Retry-After', '1').to_i
  rescue SystemCallError, IOError, Timeout::Error, Net::ProtocolError, Net::HTTPBadResponse, JSON::ParserError => e
    answer = { 'detail' => e.message }
  end
  if status == 200
    puts JSON.generate(answer)
    exit 0
  end
  warn "#{status}: #{answer['detail']}"
  exit 1 unless [0, 408, 429, 503, 504].include?(status)
  sleep wait if attempt < 8
end
warn "try later with the key #{key}"
exit 75
