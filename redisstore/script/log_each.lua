-- log_each.lua: several decisions on one log, one after the other. The store puts log_book.lua where it says DECIDE.
--
-- KEYS     1: the subject's log
-- ARGV     1: I2 bytes of a request, and as many requests, as in log_book.lua
-- Returns  the answers, one after the other; the last one that was made when it asks for other calendar boundaries

local function decide()
-- DECIDE
end

local requests, replies = ARGV[1], {}
local size = struct.unpack('>I2', requests)
for from = 3, #requests, size do
  ARGV[1] = string.sub(requests, from, from + size - 1)
  local reply = decide()
  if type(reply) ~= 'string' then return reply end -- an error
  replies[#replies + 1] = reply
  if struct.unpack('>i8', reply) == -1 then break end
end
return table.concat(replies)
