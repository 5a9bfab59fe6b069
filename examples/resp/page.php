<?php
// A page that each visitor may see five times a minute.
$sash = new Redis();
$reply = false;
try { // 0.25 seconds to connect, 0.5 for the answer, and one more try if the connection was closed meanwhile
    $sash->pconnect('127.0.0.1', (int) (getenv('SASH_PORT') ?: 6380), 0.25, null, 0, 0.5);
    $sash->setOption(Redis::OPT_MAX_RETRIES, 1);
    $reply = $sash->rawCommand('SASH.ALLOW', 'web', 'ENTRY', 'visitor', $_SERVER['REMOTE_ADDR']);
} catch (RedisException $e) {
    error_log('no decision: ' . $e->getMessage());
}
if (is_array($reply)) { // otherwise there is no decision: this page is shown then
    for ($i = 0; $i < count($reply); $i += 2) {
        $answer[$reply[$i]] = $reply[$i + 1];
    }
    if (!$answer['allowed']) {
        http_response_code(429);
        header('Retry-After: ' . ceil((float) $answer['retry_after']));
        exit("slow down\n");
    }
}
echo "hello\n";
