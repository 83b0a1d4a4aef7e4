<?php // Which broker leads this key's partition, and a record for it: with PHP. Run by `php client.php`.
$api = (getenv('SIDECAR_URL') ?: 'http://127.0.0.1:8085') . '/v1/topics/demo';
echo file_get_contents("$api/leader?key=customer-7"), "\n";
$records = json_encode(['records' => [['key' => 'customer-7', 'value' => ['total' => 12.5]]]]);
$post = ['method' => 'POST', 'header' => 'Content-Type: application/json', 'content' => $records];
$answer = file_get_contents("$api/records", false, stream_context_create(['http' => $post]));
echo $answer, "\n";
exit($answer === false ? 1 : 0);
