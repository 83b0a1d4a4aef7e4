# ruby examples/send/send.rb TOPIC TEXT [KEY]
require 'erb'
require 'json'
require 'net/http'
require 'securerandom'

def stop(code, why)
  warn why
  exit code
end

topic, text, key = ARGV
stop 64, "usage: ruby #{$PROGRAM_NAME} TOPIC TEXT [KEY]" unless [2, 3].include?(ARGV.size)
text = text.dup.force_encoding(Encoding::UTF_8)
stop 1, 'TEXT is not UTF-8' unless text.valid_encoding?
key ||= SecureRandom.uuid # one key for all attempts
base = ENV.fetch('SIDECAR_URL', 'http://127.0.0.1:8085').chomp('/')
stop 1, "SIDECAR_URL must begin with http://: #{base}" unless base.start_with?('http://')
uri = URI("#{base}/v1/topics/#{ERB::Util.url_encode(topic)}/records?max_block_ms=2000&timeout_ms=4000")
request = Net::HTTP::Post.new(uri, 'Content-Type' => 'application/json', 'Idempotency-Key' => key)
request.body = JSON.generate(records: [{ value: { text: text } }])
request['Accept-Encoding'] = 'identity' # so that Content-Length is that of the body
timeouts = { open_timeout: 2, read_timeout: 6, max_retries: 0 } # read_timeout is longer than timeout_ms

def parsed(body)
  answer = JSON.parse(body)
  answer.is_a?(Hash) ? answer : {}
rescue JSON::ParserError
  {}
end

(1..8).each do |attempt|
  status = 0 # no answer: refused, lost or too late
  wait = 1
  begin
    response = Net::HTTP.start(uri.host, uri.port, timeouts) { |http| http.request(request) }
    body = response.body.to_s
    raise EOFError, 'the answer ends too early' if body.bytesize < (response.content_length || 0)

    status = response.code.to_i
    wait = response.fetch('Retry-After', '1').to_i
    answer = parsed(body)
    if [200, 202].include?(status) && answer['results']
      puts JSON.generate(answer)
      exit 0
    end
    stored = " (stored: #{answer['written']})" if answer['written']
    warn "#{status}#{stored}: #{answer['detail'] || body[0, 200]}"
  rescue SystemCallError, SocketError, IOError, Timeout::Error, Net::ProtocolError, Net::HTTPBadResponse => e
    stored = e.is_a?(Errno::ECONNREFUSED) || e.is_a?(SocketError) ? 'no' : 'unknown'
    warn "no answer from #{base} (stored: #{stored}): #{e.message}"
  end
  exit 1 unless [0, 408, 429, 503, 504].include?(status)
  sleep wait if attempt < 8
end
stop 75, "try later with the key #{key}"
