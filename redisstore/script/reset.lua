-- reset.lua: forget a subject.
--
-- KEYS     the subject's key
-- Returns  an empty string

redis.call('UNLINK', KEYS[1])
return ''
