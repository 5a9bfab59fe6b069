<?php
// php-redis. Arguments: the name of a subject, the protocol (2).
$redis = new Redis();
$redis->connect('127.0.0.1', (int) getenv('SASH_PORT'));
$redis->auth(getenv('SASH_TOKEN'));
echo 'throttle ', implode(' ', $redis->rawCommand('CL.THROTTLE', $argv[1], 2, 3, 60)), "\n";
$allowed = 0;
for ($call = 0; $call < 7; $call++) {
    $allowed += $redis->rawCommand('SASH.ALLOW', 'web', 'ENTRY', 'user', $argv[1])[1];
}
echo "allowed $allowed\n";
$script = "return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3])";
$once = ["$argv[1] once", 0, 1, 60];
$replies = $redis->multi()->rawCommand('CL.THROTTLE', ...$once)->eval($script, $once, 1)->exec();
$replies[] = $redis->evalSha(sha1($script), $once, 1);
echo 'multi ', implode(' ', array_column($replies, 0)), "\n";
$redis->rawCommand('SASH.ALLOW', 'web', 'ENTRY');
echo 'error ', $redis->getLastError(), "\n";
try {
    $redis->auth('wrong');
    echo "in\n";
} catch (RedisException $e) {
    echo 'denied ', $e->getMessage(), "\n";
}
