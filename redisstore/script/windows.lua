-- windows.lua: the value of the algorithms that keep numbers for each window, around shared.lua. The store puts counter.lua,
-- fixed.lua or gcra.lua where it says COUNT, and the parts of a limit where it says LIMIT.
--
-- The value is one string: I1 version   I1 windows   I7 expires   the windows   the register, see register.lua
--   window  I7 name   I7 time   d x   d y    name: its length in microseconds, or 2^52 and the identity of a calendar limit;
--                                            time, x, y: see the algorithm
--
-- Most calls find the windows of the request first, in its order, and write them with one SETRANGE. The value is written anew
-- when the request has other windows, and after a clock that went back to before the first charge.
--
-- Invariants: the key lives until expires, at least as long as a window counts anything. A key keeps the windows of all
-- requests, up to 255.

-- REGISTER
-- register returns the time of the first charge, the floor and the functions over the IDs; nothing without a value,
-- and false for one that is not of this version.
local function register(key)
  local value = redis.call('GETRANGE', key, '0', '8')
  if value == '' then return nil end
  local known = string.byte(value, 2) or 0
  local from = 9 + 30 * known
  local begins = redis.call('GETRANGE', key, from, from + 13)
  if string.byte(value) ~= 1 or known == 0 or #begins < 14 then return false end
  local born, floor = struct.unpack('>I7I7', begins)
  return born, floor, of_log(key, from, HASH_IDS)
end

-- SUBJECT
    local value = call('GETRANGE', key, '0', '127')
    local known, expires = 0, 0
    if value ~= '' then
      local version
      if #value > 52 then
        version, known, expires = unpack('>I1I1I7', value)
        if known > 3 then value = call('GETRANGE', key, '0', 22 + 30 * known) end
      end
      if version ~= 1 or known == 0 or #value < 23 + 30 * known then
        return redis.error_reply('SASH the key ' .. key .. ' holds something that is not a window of this version')
      end
    end
    for from = 17, 30 * known, 30 do
      local time = unpack('>I7', value, from)
      if time > now and time - now <= STEP_BACK then -- the clock trembles, and stands
        now, stood = time, subjects > 1
        if mode ~= 2 then instant = now end
      end
    end
    local windows, ends, same, back = '', 0, true, false
    for i = 1, limits do
-- LIMIT
      local known_as, time, x, y, refused, remaining, retry, release, reset
      if i <= known then known_as, time, x, y = unpack('>I7I7dd', value, 30 * i - 20) end
      if known_as ~= name then
        same, time, x, y = false, 0, 0, 0
        for from = 10, 30 * known, 30 do
          if unpack('>I7', value, from) == name then time, x, y = unpack('>I7dd', value, from + 7) end
        end
      end
-- COUNT
      windows = windows .. pack('>I7I7dd', name, time, x, y)
      if refused then mask = mask + bit end
      bit = bit * 2
      if single and mode ~= 2 then
        out = pack('>i8I8I8I8I8I8', mask, now, remaining, retry, release, reset)
      elseif mode ~= 2 then
        out = out .. pack('>I8I8I8I8', remaining, retry, release, reset)
      end
    end

    writes = adds > 0 and (mask == 0 or sure) and (subjects > 1 or at > #request) or mode == 6 and charges and given > 0
    if writes then charged = true end
    if writes or mode == 2 or back and (adds == 0 or mask == bit - 1 and not sure) then
      local born = known > 0 and unpack('>I7', value, 10 + 30 * known) or now
      if writes and lives > 0 then ends = math.max(ends, now + lives) end
      if same and ends <= expires and now >= born then
        call('SETRANGE', key, '9', windows)
      elseif same and now >= born then
        call('SETRANGE', key, '2', pack('>I7', ends) .. windows)
        call('PEXPIRE', key, string.format('%.0f', math.ceil((ends - now) / 1000) + 1))
      else
        local rest, n = known > 0 and call('GETRANGE', key, 9 + 30 * known, '-1') or pack('>I7I7', now, 0), limits
        if now < born and writes then rest = pack('>I7', now) .. string.sub(rest, 8) end
        for from = 10, 30 * known, 30 do -- windows of other requests
          local other, asked_too = unpack('>I7', value, from), false
          for i = 1, limits do asked_too = asked_too or unpack('>I7', windows, 30 * i - 29) == other end
          if not asked_too and n < 255 then windows, n = windows .. string.sub(value, from, from + 29), n + 1 end
        end
        if expires < ends then expires = ends end
        call('SET', key, pack('>I1I1I7', 1, n, expires) .. windows .. rest, 'PX',
          string.format('%.0f', math.max(0, math.ceil((expires - now) / 1000)) + 1))
      end
    end
