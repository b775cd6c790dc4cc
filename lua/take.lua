-- Decides groups of demands, each group on its own, and charges each to all of its counters or to none.
-- README.md is the contract.

local DENIED, ADMITTED, OTHER_WINDOW = 0, 1, 2
local DAY = 86400
local FIELDS = 6

-- Once: it runs on within a script, and one call is one moment.
local now = tonumber(ARGV[1])
local expiry_option = 'EX'
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
  expiry_option = 'PXAT'
end
local seconds = floor(now / 1000)

-- When a counter created now is no longer needed: after this window and all of the next, in which it is
-- the previous one. Absolute and from the same TIME, so that it lives to the last moment of that. A
-- given `now` may lie in the past, or go back by up to a day; there it is counted from the real present.
local function expiry(window)
  if expiry_option == 'PXAT' then
    return format('%.0f', now + 2000 * window)
  end
  return format('%.0f', 2 * window + DAY)
end

-- Looks at the `demands` that start at KEYS[key] and ARGV[arg], and appends their decisions to `reply`
-- after position `filled`: the group's status, or a text if it cannot be decided.
local function decide(demands, key, arg, reply, filled)
  local status = ADMITTED
  for _ = 1, demands do
    local rule, action = rules[ARGV[arg]], ARGV[arg + 1]
    local quota, window, cost = tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3]), tonumber(ARGV[arg + 4])
    if not (rule and quota and window and cost) then
      return 'ERR the demand is not understood'
    end
    local moment, length = now, 1000 * window
    if window > DAY then
      moment, length = seconds, window
    end
    local elapsed = moment % length
    if (moment - elapsed) / length ~= tonumber(ARGV[arg + 5]) then
      return OTHER_WINDOW
    end

    local allowed, current, previous = rule.decide(KEYS[key], KEYS[key + 1], quota, length, elapsed, cost)
    if allowed == nil then
      return current
    end
    if action == 'charge' then
      if current + cost >= EXACT then
        return 'ERR the counter would pass 2^53 units'
      end
    elseif not allowed then
      status = DENIED
    end
    reply[filled + 1], reply[filled + 2], reply[filled + 3] = allowed and 1 or 0, current, previous
    filled = filled + 3
    key, arg = key + 2, arg + FIELDS
  end
  return status
end

-- Charges what `decide` admitted; a text if that fails, and then nothing is charged: a server that
-- takes the first write of a script takes all of them.
local function charge(demands, key, arg, reply, filled)
  for _ = 1, demands do
    if ARGV[arg + 1] ~= 'peek' then
      local rule, window = rules[ARGV[arg]], tonumber(ARGV[arg + 3])
      local fault = rule.charge(KEYS[key], reply[filled + 2], ARGV[arg + 4], expiry_option, expiry(window))
      if fault then
        return fault
      end
    end
    key, arg, filled = key + 2, arg + FIELDS, filled + 3
  end
  return nil
end

local reply = { now }
local filled, key, arg, last = 1, 1, 2, #ARGV
while arg <= last do
  local demands = tonumber(ARGV[arg])
  arg = arg + 1
  local status = decide(demands, key, arg, reply, filled + 1)
  if status == ADMITTED then
    status = charge(demands, key, arg, reply, filled + 1) or ADMITTED
  end
  filled = filled + 1
  reply[filled] = status
  if status == ADMITTED or status == DENIED then
    filled = filled + 3 * demands
  end
  key, arg = key + 2 * demands, arg + FIELDS * demands
end

-- What an undecided group left behind its status.
for place = #reply, filled + 1, -1 do
  reply[place] = nil
end
return reply
