# ruby-redis. Arguments: the name of a subject, the protocol (2).
require 'redis'
redis = Redis.new(port: ENV['SASH_PORT'].to_i, password: ENV['SASH_TOKEN'])
puts "throttle #{redis.call('CL.THROTTLE', ARGV[0], 2, 3, 60).join(' ')}"
allowed = 7.times.sum { redis.call('SASH.ALLOW', 'web', 'ENTRY', 'user', ARGV[0])[1] }
puts "allowed #{allowed}"
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
