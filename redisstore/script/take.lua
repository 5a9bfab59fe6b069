-- take.lua: decisions that charge what fits, charge in any case, or give units back. The store puts the script of an
-- algorithm where it says DECIDE.
--
-- KEYS     1: the subject's key
-- ARGV     1: the request for one subject, as in log.lua, and at the end I1 order:
--             1 charge as many units as fit, up to the cost and at least one
--             2 charge the cost whether or not there is room; the answer is that of a look afterwards
--             3 give the cost back, as log_reward.lua does for the compact log
-- Returns  the answer of the decision, and I8 the units charged; what the decision returns if it decides nothing
--
-- Invariants: those of the decision. The look that comes first writes only what a peek writes.

local function decide()
-- DECIDE
end

local request, pack, unpack = string.sub(ARGV[1], 1, -2), struct.pack, struct.unpack
local mode, _, cost = unpack('>I1I7I5', request)
local order = string.byte(ARGV[1], -1)

-- ask makes a decision of a cost, in a mode. If the reply is not an answer, ask returns the reply alone.
local function ask(as, units)
  ARGV[1] = string.char(as) .. string.sub(request, 2, 8) .. pack('>I5', units) .. string.sub(request, 14)
  local reply = decide()
  if type(reply) ~= 'string' then return reply end -- an error
  local refusals = unpack('>i8', reply)
  if refusals < 0 then return reply end -- boundaries of a calendar limit around another time
  return reply, refusals
end

if order == 3 then return (ask(6, cost)) end -- the decision adds the units itself
local reply, refusals = ask(0, 0)
if not refusals then return reply end
if order == 2 then
  local charged, done = ask(5, cost)
  if not done then return charged end
  local after, valid = ask(0, 0)
  return (valid and after or reply) .. pack('>I8', 0) -- not valid: the clock has just passed a boundary
end
for at = 17, #reply, 32 do
  cost = math.min(cost, math.max(1, (unpack('>I8', reply, at))))
end
reply, refusals = ask(mode, cost)
if refusals and refusals > 0 and cost > 1 and mode ~= 1 then -- what remains under gcra is rounded: one too many
  cost = cost - 1
  reply, refusals = ask(mode, cost)
end
if not refusals then return reply end
return reply .. pack('>I8', refusals == 0 and cost or 0)
