-- reset.lua: forgets a subject.
--
-- KEYS     1: the subject's key, and that of its block
-- Returns  an empty string

redis.call('UNLINK', unpack(KEYS))
return ''
