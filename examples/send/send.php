<?php // php examples/send/send.php TOPIC TEXT [KEY]
function stop(int $code, string $why)
{
    fwrite(STDERR, "$why\n");
    exit($code);
}

if ($argc !== 3 && $argc !== 4) stop(64, "usage: php $argv[0] TOPIC TEXT [KEY]");
[, $topic, $text] = $argv;
if (!preg_match('//u', $text)) stop(1, 'TEXT is not UTF-8');
$key = $argv[3] ?? bin2hex(random_bytes(16));  // one key for all attempts
$base = rtrim(getenv('SIDECAR_URL') ?: 'http://127.0.0.1:8085', '/');
if (!preg_match('~^https?://~', $base)) stop(1, "SIDECAR_URL must begin with http://: $base");
$url = "$base/v1/topics/" . rawurlencode($topic) . '/records?max_block_ms=2000&timeout_ms=4000';
$context = stream_context_create(['http' => [
    'method' => 'POST',
    'header' => ['Content-Type: application/json', "Idempotency-Key: $key"],
    'content' => json_encode(['records' => [['value' => ['text' => $text]]]], JSON_THROW_ON_ERROR),
    'timeout' => 6,           // longer than timeout_ms
    'ignore_errors' => true,  // read the body of an error too
]]);

for ($attempt = 1; $attempt <= 8; $attempt++) {
    $status = 0;  // no answer: refused, lost or too late
    $wait = 1;
    $length = 0;
    error_clear_last();
    $stream = @fopen($url, 'r', false, $context);
    $body = $stream === false ? '' : (string) @stream_get_contents($stream);
    foreach ($stream === false ? [] : stream_get_meta_data($stream)['wrapper_data'] as $line) {
        if (preg_match('~^HTTP/\S+ (\d+)~', $line, $found)) $status = (int) $found[1];
        if (preg_match('~^Retry-After: *(\d+)~i', $line, $found)) $wait = (int) $found[1];
        if (preg_match('~^Content-Length: *(\d+)~i', $line, $found)) $length = (int) $found[1];
    }
    if (strlen($body) < $length) $status = 0;  // lost before its end
    $answer = json_decode($body, true);
    if (in_array($status, [200, 202], true) && isset($answer['results'])) {
        echo json_encode($answer), "\n";
        exit(0);
    }
    if ($status === 0) {
        $why = error_get_last()['message'] ?? "the connection to $base was lost";
        $stored = preg_match('/refused|getaddrinfo/', $why) ? 'no' : 'unknown';
        $line = "no answer (stored: $stored): $why";
    } else {
        $stored = isset($answer['written']) ? " (stored: {$answer['written']})" : '';
        $line = "$status$stored: " . ($answer['detail'] ?? substr($body, 0, 200));
    }
    fwrite(STDERR, "$line\n");
    if (!in_array($status, [0, 408, 429, 503, 504], true)) exit(1);
    if ($attempt < 8) sleep($wait);
}
stop(75, "try later with the key $key");
