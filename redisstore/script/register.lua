-- register.lua: the part of a subject's value besides its charges. It comes before the scripts that need it.
--
--   register  I7 time of the first charge since the key was made  I7 floor  and buckets of BUCKET records, or one
--             that is smaller, or none
--   record    8 bytes ID  I7 time until which it is remembered  I1 refusals of the call
--
-- A settlement of a charge from before the first does nothing: a reset has removed that charge.
--
-- The ID of a call or a settlement is a hash, whose first bit is set for a settlement. Bytes 2 to 4 choose its bucket.
-- In a full bucket it replaces a record that is no longer remembered. If there is none, the records double, up to a bound.
-- At the bound it replaces the record that ends first. The floor is the latest end of a settlement replaced in this way: a
-- settlement that ends no later may have been applied already, and no longer gives units back.

-- memory returns functions over the IDs of a register of some bytes, with a most of records. get returns the bytes
-- [from, to], the first being 0; set writes bytes from an offset on, and may add to the end.
local function memory(size, most, get, set)
  local unpack, find, sub, rep = struct.unpack, string.find, string.sub, string.rep
  local records = (size - 14) / 16 -- places
  local bytes = math.min(records, BUCKET) * 16 -- of a bucket
  local ids = {}

  local function bucket(id)
    local offset = 14 + unpack('>I3', id, 2) % (records * 16 / bytes) * bytes
    return offset, get(offset, offset + bytes - 1)
  end

  -- place returns where an ID is in a bucket, or nil.
  local function place(str, id)
    local at = 0
    repeat at = find(str, id, at + 1, true) until not at or at % 16 == 1
    return at
  end

  -- double doubles the records. It leaves out records of full buckets that are no longer remembered.
  local function double(now)
    local old = records * 16 / bytes -- buckets
    local grown = math.max(1, 2 * records)
    if grown <= BUCKET then
      set(14 + records * 16, rep('\0', (grown - records) * 16))
    else
      local parts = {}
      for b = 0, old - 1 do
        local str, halves = get(14 + b * bytes, 13 + b * bytes + bytes), {[b] = '', [b + old] = ''}
        for at = 1, bytes, 16 do
          if unpack('>I7', str, at + 8) > now then
            local to = unpack('>I3', str, at + 1) % (2 * old)
            halves[to] = halves[to] .. sub(str, at, at + 15)
          end
        end
        for to, half in pairs(halves) do parts[to + 1] = half .. rep('\0', bytes - #half) end
      end
      set(14, table.concat(parts))
    end
    records, bytes = grown, math.min(grown, BUCKET) * 16
  end

  -- find returns until when an ID is remembered, 0 if it is unknown, and the refusals of its call.
  function ids.find(id)
    if records == 0 then return 0 end
    local _, str = bucket(id)
    local at = place(str, id)
    if not at then return 0 end
    return unpack('>I7I1', str, at + 8)
  end

  -- put stores an ID that is not remembered yet.
  function ids.put(id, ends, refusals, now)
    local offset, str, at, first
    while not at do
      if records > 0 then
        offset, str = bucket(id)
        first, at = 2^53, place(str, id)
        for other = 1, at and 0 or bytes, 16 do
          local e = unpack('>I7', str, other + 8)
          if e < first then first, at = e, other end
        end
        if first ~= 2^53 and first > now and records < most then at = nil end
      end
      if not at then double(now) end
    end
    if first ~= 2^53 and first > now and string.byte(str, at) > 127 then
      set(7, struct.pack('>I7', math.max(first, (unpack('>I7', get(7, 13))))))
    end
    set(offset + at - 1, id .. struct.pack('>I7I1', ends, refusals))
  end

  return ids
end

-- write_again writes a key's expiry unchanged. If another program has removed the expiry, the key stays without one.
local function write_again(key)
  local ms = redis.call('PTTL', key)
  if ms >= 0 then redis.call('PEXPIRE', key, math.max(1, ms)) end -- 0 would delete it
end

-- of_log returns the functions over the IDs of a string whose register begins at an offset, at most so many.
local function of_log(key, register, most)
  local call = redis.call
  return memory(call('STRLEN', key) - register, most, function(from, to)
    return call('GETRANGE', key, register + from, register + to)
  end, function(from, bytes)
    call('SETRANGE', key, register + from, bytes)
  end)
end

