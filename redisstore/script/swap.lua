-- swap.lua: replaces the text of a key if it is still what the caller takes it for.
--
-- KEYS     1: the text
-- ARGV     1: I7 microseconds that the new text lasts   I2 length of the old text; the old text, the new text
-- Returns  I7 now   12 bytes: the process of Redis   the text that the key has then
--
-- The address of a function tells processes of Redis apart: see held_spend.lua.
--
-- Invariants: a look, whose texts are equal, writes nothing. Every write sets the expiry.

local call, sub = redis.call, string.sub
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local lasts, size = struct.unpack('>I7I2', ARGV[1])
local old, new = sub(ARGV[1], 10, 9 + size), sub(ARGV[1], 10 + size)
local text = call('GET', KEYS[1]) or ''
if new ~= old and text == old then
  call('SET', KEYS[1], new, 'PX', string.format('%.0f', math.max(1, math.ceil(lasts / 1000))))
  text = new
end
return struct.pack('>I7', now) .. sub(tostring(call), -12) .. text
