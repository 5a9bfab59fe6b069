<?php
// Makes a history of a limiter for sash verify: drive.php LIMITER ADDRESS <load >history.
use Symfony\Component\Cache\Adapter\RedisAdapter;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;
use Symfony\Component\RateLimiter\RateLimiterFactory;
use Symfony\Component\RateLimiter\Storage\CacheStorage;

foreach (['RateLimiter', 'Cache', 'Lock'] as $part) {
    require_once "Symfony/Component/$part/autoload.php";
}
$policies = ['symfony-fixed' => 'fixed_window', 'symfony-sliding' => 'sliding_window'];
$redis = RedisAdapter::createConnection("redis://$argv[2]");
$factory = new RateLimiterFactory(
    ['id' => 'drive', 'policy' => $policies[$argv[1]], 'limit' => 20, 'interval' => '2 seconds'],
    new CacheStorage(new RedisAdapter($redis)),
    new LockFactory(new RedisStore($redis)),
);
$allow = fn (string $key): bool => $factory->create($key)->consume()->isAccepted();

$allow('warm-up');
while ($line = fgets(STDIN)) {
    [$at, $key] = explode(' ', trim($line));
    usleep((int) max(0, 1e6 * ($at - microtime(true))));
    $call = ['key' => $key, 'sent' => microtime(true)];
    try {
        $call['admitted'] = $allow($key);
    } catch (Throwable $e) { // no answer
        fwrite(STDERR, $e->getMessage() . "\n");
    }
    $call['received'] = microtime(true);
    echo json_encode($call), "\n";
}
