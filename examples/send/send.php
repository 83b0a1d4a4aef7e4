<?php // php examples/send/send.php TOPIC TEXT [KEY]
[, $topic, $text] = $argv;
$key = $argv[3] ?? bin2hex(random_bytes(16));  // one key for all attempts
$base = getenv('PILOTFISH_URL') ?: 'http://127.0.0.1:8085';
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
    $answer = null;
    $stream = @fopen($url, 'r', false, $context);
    if ($stream !== false) {
        $answer = json_decode((string) stream_get_contents($stream), true);
        foreach ($answer === null ? [] : stream_get_meta_data($stream)['wrapper_data'] as $line) {
            if (preg_match('~^HTTP/\S+ (\d+)~', $line, $found)) $status = (int) $found[1];
            if (preg_match('~^Retry-After: *(\d+)~i', $line, $found)) $wait = (int) $found[1];
        }
        fclose($stream);
    }
    if ($status === 200) {
        echo json_encode($answer), "\n";
        exit(0);
    }
    fwrite(STDERR, "$status: " . ($answer['detail'] ?? 'no answer') . "\n");
    if (!in_array($status, [0, 408, 429, 503, 504], true)) exit(1);
    if ($attempt < 8) sleep($wait);
}
fwrite(STDERR, "try later with the key $key\n");
exit(75);
