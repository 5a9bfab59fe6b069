-- reset.lua: forgets a subject.
--
-- KEYS     1: the subject's key
-- Returns  an empty string

redis.call('UNLINK', KEYS[1])
return ''
