-- reset.lua: forgets a subject.
--
-- KEYS     1: the subject's key, and that of its block if it can have one
-- Returns  an empty string

redis.call('UNLINK', unpack(KEYS))
return ''
