# ruby-redis. Arguments: the name of a subject, the protocol (2).
require 'redis'
redis = Redis.new(port: ENV['SASH_PORT'].to_i, password: ENV['SASH_TOKEN'])
puts "throttle #{redis.call('CL.THROTTLE', ARGV[0], 2, 3, 60).join(' ')}"
allowed = 7.times.sum { redis.call('SASH.ALLOW', 'web', 'ENTRY', 'user', ARGV[0])[1] }
puts "allowed #{allowed}"
script, keys, limit = "return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3])", ["#{ARGV[0]} once"], [0, 1, 60]
replies = redis.multi { |transaction| 2.times { transaction.eval(script, keys, limit) } }
replies << redis.evalsha(redis.script(:load, script), keys, limit)
puts "multi #{replies.map(&:first).join(' ')}"
begin
  redis.call('SASH.ALLOW', 'web', 'ENTRY')
rescue Redis::CommandError => e
  puts "error #{e.message}"
end
begin
  redis.auth('wrong')
rescue Redis::CommandError => e
  puts "denied #{e.message}"
end
