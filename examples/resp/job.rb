# A job that calls an API at most three times in any second. One that has no room schedules itself again for when it will
# have, and its worker goes on with others, as with Sidekiq: self.class.perform_in(seconds, id).
require 'redis'

SASH = Redis.new(port: (ENV['SASH_PORT'] || 6380).to_i)
SCHEDULE = [] # [time, id]: Sidekiq keeps it in Redis

def perform(id)
  answer = SASH.call('SASH.ALLOW', 'web', 'ENTRY', 'api', 'search').each_slice(2).to_h
  return puts("job #{id} is done") if answer['allowed'] == 1

  SCHEDULE << [Time.now + answer['retry_after'].to_f, id]
  puts "job #{id} comes back"
end

(1..7).each { |id| SCHEDULE << [Time.now, id] }
until SCHEDULE.empty?
  time, id = SCHEDULE.delete(SCHEDULE.min)
  sleep [time - Time.now, 0].max
  perform(id)
end
