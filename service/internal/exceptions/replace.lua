-- replace.lua: replace the document that was read by another one.
--
-- KEYS     1: the document: a string that begins with its version
-- ARGV     1: the version that was read, empty if there was no document   2: the new document
--          3: its lifetime in milliseconds
-- Returns  1, or 0 if the document has another version and nothing was written
--
-- Invariant: the key has an expiry. A repetition after a lost reply finds its own version and returns 0.

local version = redis.call('GETRANGE', KEYS[1], 0, 15)
if version ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
