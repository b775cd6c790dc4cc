-- Decides groups of demands, each group on its own, and charges each to all of its counters or to none.
-- README.md is the contract.

local DENIED, ADMITTED, OTHER_WINDOW = 0, 1, 2
local DAY = 86400
local FIELDS, SAME = 6, '='
local HAS_EXACT, IS_LOG, UNKNOWN = 2, 4, -1

-- Once: it runs on within a script, and one call is one moment.
local now = tonumber(ARGV[1])
-- A counter created now is needed for the rest of its window, and for all of the next as the previous
-- one. Its end is absolute and follows from the same TIME, so that it lives to the last moment of that. A
-- given `now` may lie in the past, or go back by up to a day: there it is counted from the real present.
local expiry_option, expiry_base, expiry_scale, expire = 'EX', DAY, 2, 'EXPIRE'
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
  expiry_option, expiry_base, expiry_scale, expire = 'PXAT', now, 2000, 'PEXPIREAT'
end
local seconds = floor(now / 1000)

-- `reply` is complete up to `filled`; the next group starts at KEYS[key] and ARGV[arg]. Its demands are from
-- ARGV[first] on, where those of an earlier group may be.
local reply, filled = { now }, 1
-- What was read of logs, by their place in KEYS.
local logs = with_logs and {}
local key, arg, last = 1, 3, #ARGV
local first, demands
-- How many demands the groups before this one have: the place of its first one in `kinds`.
local before = 0
-- What is read of a demand, and where that is.
local at, rule, action, quota, cost, moment, length, elapsed, is_elsewhere

while arg <= last do
  if ARGV[arg] == SAME then
    arg = arg + 1
  else
    first, demands = arg + 1, tonumber(ARGV[arg])
    arg = first + FIELDS * demands
  end
  local status = ADMITTED

  -- Decide: the decisions go where they belong if the group is decided, after its status.
  local k, a, place = key, first, filled + 1
  -- The logs that decide, in this group.
  local deciding = with_logs and {}
  for demand = 1, demands do
    if a ~= at then
      local window = tonumber(ARGV[a + 3])
      at, rule, action = a, rules[ARGV[a]], ARGV[a + 1]
      quota, cost = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 4])
      moment, length = now, 1000 * window
      if window > DAY then
        moment, length = seconds, window
      end
      elapsed = moment % length
      is_elsewhere = (moment - elapsed) / length ~= tonumber(ARGV[a + 5])
    end
    local allowed

    if rule then
      if is_elsewhere then
        status = OTHER_WINDOW
        break
      end
      local current, unread = count(KEYS[k])
      local previous = 0
      if current then
        previous, unread = count(KEYS[k + 1])
      end
      if unread then
        status = unread
        break
      end
      allowed = rule(current, previous, quota, length, elapsed, cost)
      if action == 'charge' and current + cost >= EXACT then
        status = 'ERR the counter would pass 2^53 units'
        break
      end
      reply[place + 1], reply[place + 2], reply[place + 3] = allowed and 1 or 0, current, previous
      if with_logs and kind_of(before + demand) == AUDITED then
        local done, log = pcall(read_log, KEYS[k + 2], moment, length, ARGV[a + 5], current, previous)
        logs[k + 2] = done and log
        reply[place + 1] = reply[place + 1] + HAS_EXACT
        reply[place + 4] = done and (log.exact or UNKNOWN) or fault(log)
        k, place = k + 1, place + 1
      end
      k, place = k + 2, place + 3
    else
      local log_rule = own[ARGV[a]]
      local done, log = pcall(log_rule.read, KEYS[k], moment, length, quota, cost)
      if not done then
        status = fault(log)
        break
      end
      allowed = log.allowed
      reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4] =
        (allowed and 1 or 0) + IS_LOG, log.units, 0, 0
      log.rule, log.place, logs[k] = log_rule, place, log
      deciding[#deciding + 1] = log
      k, place = k + 1, place + 4
    end
    if not allowed and action ~= 'charge' then
      status = DENIED
    end
    a = a + FIELDS
  end
  local filled_by_decisions = place

  -- Charge. One command creates a counter with its time to live, and nothing changes that afterwards.
  if status == ADMITTED then
    k, a, place = key, first, filled + 1
    for demand = 1, demands do
      local kind, charges = with_logs and kind_of(before + demand), ARGV[a + 1] ~= 'peek'
      if kind == LOG then
        local log = logs[k]
        local done, why = true, nil
        if charges then
          done, why = pcall(log.rule.charge, log, expire, format('%.0f', expiry_base + expiry_scale * ARGV[a + 3]))
        end
        if not done then
          status = fault(why)
          break
        end
        k, place = k - 1, place + 1
      elseif charges then
        local cost, done = ARGV[a + 4], nil
        if reply[place + 2] == 0 then
          local expiry = format('%.0f', expiry_base + expiry_scale * ARGV[a + 3])
          done = try('SET', KEYS[k], cost, 'NX', expiry_option, expiry)
        end
        if not done then
          -- It exists, perhaps with 0 units, all of them given back.
          done = try('INCRBY', KEYS[k], cost)
        end
        if type(done) == 'table' and done.err then
          -- Nothing is charged: a server that takes the first write of a script takes all of them.
          status = done.err
          break
        end
        if kind == AUDITED then
          local log, added, why = logs[k + 2], false, nil
          if log then
            added, why = pcall(add_to_log, log, tonumber(cost), 2 * ARGV[a + 2],
              expire, format('%.0f', expiry_base + expiry_scale * ARGV[a + 3]))
          end
          if not added then
            -- No log rather than one with a gap, or without an end. It tells why it was not read, or not added to.
            try('DEL', KEYS[k + 2])
            reply[place + 4] = log and fault(why) or reply[place + 4]
          end
        end
      end
      if kind == AUDITED then
        k, place = k + 1, place + 1
      end
      k, a, place = k + 2, a + FIELDS, place + 3
    end
  end

  if deciding and (status == ADMITTED or status == DENIED) then
    for _, log in ipairs(deciding) do
      reply[log.place + 3], reply[log.place + 4] = log.rule.leaving(log)
    end
  end

  filled = filled + 1
  reply[filled] = status
  if status == ADMITTED or status == DENIED then
    filled = filled_by_decisions
  end
  for demand = 1, with_logs and demands or 0 do
    local kind = kind_of(before + demand)
    key = key + (kind == AUDITED and 1 or kind == LOG and -1 or 0)
  end
  key, before = key + 2 * demands, before + demands
end

-- What an undecided group left behind its status.
for place = #reply, filled + 1, -1 do
  reply[place] = nil
end
return reply
